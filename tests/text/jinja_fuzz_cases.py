"""Random expressions and templates, seeded, built so that a good part of them is valid.

Left out, as ours differs on purpose or Python prints an address: printed iterators, slices of ranges,
ordered dict views, filter blocks that make numbers, and expressions of constants alone, which jinja2
folds by other rules.
"""

import random
from collections.abc import Iterator

CONTEXT = {
    "n": 7,
    "m": -3,
    "f": 2.5,
    "s": "Hello, World",
    "u": "Çédille 日本 🦙 x",
    "w": "  padded \n",
    "e": "",
    "none_value": None,
    "t": True,
    "xs": [3, 1, 2, 3, -1],
    "ws": ["b", "A", "c", "a"],
    "d": {"a": 1, "b": [1, 2], "c": {"x": "y"}, "k e y": None},
    "rows": [{"k": 1, "v": "one"}, {"k": 2, "v": "two"}, {"k": 1, "v": "uno"}],
}
NUMBERS = ["n", "m", "f", "t", "n * 0", "1 * t", "2 + m", "10 - n", "3.5 * t", "-4 + n", "d.a", "xs[0]", "xs|length", "rows[1].k", "s|length"]
TEXTS = ["s", "u", "w", "e", "('abc' ~ e)", "('a-b_c' ~ e)", "(\"it's\" ~ e)", "d.c.x", "ws[0]", "rows[0].v", "(e ~ 'x,y,,z')", "(e ~ '%s|')", "('12' ~ e)", "(' 3.5 ' ~ e)"]
LISTS = ["xs", "ws", "rows", "[1, n, 3]", "e.split()", "d.b", "['a', none_value, 2.0]", "(n, 'b')", "(range(n)|list)", "s.split(', ')", "(d.keys()|list)", "(d|list)"]
DICTS = ["d", "rows[0]", "dict()", "{'q': n, 'r': [2]}", "dict(a=1)"]
OTHERS = ["none_value", "nope", "d.nope", "none", "true", "false"]
TEXT_METHODS = [
    ".upper()", ".lower()", ".title()", ".capitalize()", ".strip()", ".lstrip('H ')", ".rstrip()", ".split()", ".split(',')",
    ".split('l', 1)", ".rsplit('l', 1)", ".replace('l', 'LL')", ".replace('a', '', 1)", ".startswith('H')", ".endswith(('d', 'x'))",
    ".find('o')", ".count('l')", ".splitlines()", "[1:-1]", "[::-1]", "[0]", "[-2:]", "[9]", ".isdigit()", ".join(ws)", ".partition('l')",
    ".rfind('l')", ".isalpha()", ".islower()", ".removeprefix('He')", ".format(n, s)", ".zz",
]
TEXT_FILTERS = [
    "upper", "lower", "title", "capitalize", "trim", "length", "list", "first", "last", "reverse|list", "replace('l', 'x')", "int", "float",
    "string", "tojson", "default('z')", "d('z', true)", "join('-')", "indent(2)", "trim('Hd')", "int(5, 16)", "format(1)", "unique|list", "sort",
]
LIST_FILTERS = [
    "length", "first", "last", "list", "join(',')", "sort", "sort(reverse=true)", "unique|list", "reverse|list", "min", "max", "sum", "tojson",
    "map('string')|list", "map('upper')|join", "select('odd')|list", "reject('none')|list", "select('number')|list", "map(attribute='k')|list",
    "selectattr('k', 'eq', 1)|list", "rejectattr('v', 'in', ['one'])|map(attribute='v')|join('/')", "select|list", "batch(2)|list",
    "map('default', 0)|list", "sort(attribute='v')", "string", "tojson(indent=2)", "default(1)", "sum(attribute='k')", "max(attribute='v')",
]
DICT_FILTERS = ["length", "items|list", "dictsort", "tojson", "list", "first", "tojson(indent=1)", "tojson(sort_keys=true)", "string", "default(2)", "dictsort(by='value')"]
DICT_METHODS = [".items()", ".keys()", ".values()", ".get('a')", ".get('zz', 9)", "['b']", ".c", ".nope", ".a", ".items()|list"]
LIST_METHODS = ["[0]", "[-1]", "[1:]", "[::-1]", "[:2]", "[10]", ".index(1)", ".count(3)", "['a']", "[::2]", "[-2:]"]
TESTS = [
    "defined", "none", "string", "mapping", "iterable", "sequence", "number", "integer", "float", "boolean", "odd", "even", "divisibleby 2",
    "eq 1", "in [1, 'a']", "gt 2", "true", "false", "lower", "upper", "ne none", "callable", "undefined",
]
COMPARISONS = ["==", "!=", "<", "<=", ">", ">=", "in", "not in"]
ARITHMETIC = ["+", "-", "*", "/", "//", "%"]


class Generator:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def pick(self, choices: list[str]) -> str:
        return self.random.choice(choices)

    def number(self, depth: int) -> str:
        if depth <= 0 or self.random.random() < 0.3:
            return self.pick(NUMBERS)
        kind = self.random.randrange(6)
        if kind < 3:
            return f"{self.number(depth - 1)} {self.pick(ARITHMETIC)} {self.number(depth - 1)}"
        if kind == 3:
            return f"({self.number(depth - 1)})|{self.pick(['abs', 'int', 'float', 'round', 'round(1)', 'string|length'])}"
        if kind == 4:
            return f"-({self.number(depth - 1)})"
        return f"({self.number(depth - 1)} if {self.truth(depth - 1)} else {self.number(depth - 1)})"

    def text(self, depth: int) -> str:
        if depth <= 0 or self.random.random() < 0.3:
            return self.pick(TEXTS)
        kind = self.random.randrange(5)
        if kind == 0:
            return f"({self.text(depth - 1)}){self.pick(TEXT_METHODS)}"
        if kind == 1:
            return f"({self.text(depth - 1)})|{self.pick(TEXT_FILTERS)}"
        if kind == 2:
            return f"{self.text(depth - 1)} ~ {self.any(depth - 1)}"
        if kind == 3:
            return f"{self.text(depth - 1)} + {self.text(depth - 1)}"
        return f"{self.pick(['s', 'e', 'w'])} * {self.pick(['2', '0', 't'])}"

    def list(self, depth: int) -> str:
        if depth <= 0 or self.random.random() < 0.4:
            return self.pick(LISTS)
        kind = self.random.randrange(4)
        if kind == 0:
            return f"({self.list(depth - 1)}){self.pick(LIST_METHODS)}"
        if kind == 1:
            return f"({self.list(depth - 1)})|{self.pick(LIST_FILTERS)}"
        if kind == 2:
            return f"[{self.any(depth - 1)}, {self.any(depth - 1)}]"
        return f"{self.list(depth - 1)} + {self.list(depth - 1)}"

    def dict(self, depth: int) -> str:
        if depth <= 0 or self.random.random() < 0.4:
            return self.pick(DICTS)
        kind = self.random.randrange(3)
        if kind == 0:
            return f"({self.dict(depth - 1)}){self.pick(DICT_METHODS)}"
        if kind == 1:
            return f"({self.dict(depth - 1)})|{self.pick(DICT_FILTERS)}"
        return f"{{'p': {self.any(depth - 1)}, {self.pick(['1', 'none', 's'])}: {self.any(depth - 1)}}}"

    def truth(self, depth: int) -> str:
        kind = self.random.randrange(5)
        if kind == 0:
            return f"{self.any(depth - 1)} is {self.pick(['', 'not '])}{self.pick(TESTS)}"
        if kind == 1:
            return f"{self.any(depth - 1)} {self.pick(COMPARISONS)} {self.any(depth - 1)}"
        if kind == 2:
            same = self.random.choice([self.number, self.text, self.list])
            return f"{same(depth - 1)} {self.pick(COMPARISONS)} {same(depth - 1)}"
        if kind == 3:
            return f"not ({self.any(depth - 1)})"
        return f"({self.any(depth - 1)} {self.pick(['and', 'or'])} {self.any(depth - 1)})"

    def any(self, depth: int) -> str:
        if depth > 0 and self.random.random() < 0.1:
            return f"({self.truth(depth - 1)})"
        if self.random.random() < 0.08:
            return self.pick(OTHERS)
        return self.random.choice([self.number, self.text, self.list, self.dict])(depth)

    def statement(self, depth: int) -> str:
        kind = self.random.randrange(12 if depth > 0 else 4)
        space = self.pick(["", " ", "\n", "  \n  ", "\n\t"])
        begin, end = self.pick(["{%", "{%-", "{%", "{%+"]), self.pick(["%}", "-%}", "%}", "+%}"])
        if kind == 0:
            return f"{space}text {self.pick(['.', '{', '#', '日'])}{space}"
        if kind <= 2:
            return f"{space}{self.pick(['{{', '{{-'])} {self.any(2)} {self.pick(['}}', '-}}'])}{space}"
        if kind == 3:
            return f"{space}{begin} set {self.pick(['p', 'q', 'ns.z'])} = {self.any(2)} {end}{space}{self.pick(['', '{{ p }}', '{{ ns.z }}'])}"
        body, other = self.body(depth - 1), self.body(depth - 1)
        if kind <= 5:
            return f"{begin} if {self.truth(2)} {end}{space}{body}{begin} else {end}{other}{space}{begin} endif {end}"
        if kind <= 8:
            guard = self.pick(["", "", f" if {self.truth(1)}"])
            stop = self.pick(["", "", "{% if loop.index == 2 %}{% break %}{% endif %}", "{% if i %}{% continue %}{% endif %}"])
            loop = self.pick(["{{ loop.index }}", "{{ loop.last }}", "{{ loop.previtem }}", "{{ loop.length }}{{ loop.revindex0 }}", "{{ i }}"])
            return f"{begin} for i in {self.list(1)}{guard} {end}{space}{stop}{loop}{body}{begin} else {end}{other}{begin} endfor {end}{space}"
        if kind == 9:
            return f"{begin} set p {end}{body}{begin} endset {end}[{{{{ p }}}}]"
        if kind == 10:
            return f"{begin} filter {self.pick(['upper', 'trim', 'capitalize', 'title'])} {end}{body}{space}{begin} endfilter {end}"
        return f"{begin} macro g(a, b={self.any(1)}) {end}{{{{ a }}}}{body}{begin} endmacro {end}{{{{ g({self.any(1)}) }}}}"

    def body(self, depth: int) -> str:
        return "".join(self.statement(depth) for _ in range(self.random.randint(1, 2)))


def sources(seed: int, count: int) -> Iterator[str]:
    made = Generator(seed)
    for _ in range(count):
        yield "{{ " + made.any(3) + " }}"


def templates(seed: int, count: int) -> Iterator[str]:
    made = Generator(1000 + seed)
    for _ in range(count):
        yield "{% set ns = namespace(z=0) %}" + made.body(3)
