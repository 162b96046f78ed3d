"""Random JSON schemas over the keywords that the server enforces."""

import random

WORDS = ["alpha", "beta", "gamma", "délta", "ε", "a b", 'q"q']


def random_schema(seed: int) -> dict:
    rng = random.Random(seed)
    definitions: dict[str, dict] = {}
    schema = _value(rng, 3, definitions)
    if rng.random() < 0.7 or not isinstance(schema, dict):
        schema = _object(rng, 3, definitions)
    if definitions:
        schema = {**schema, "$defs": definitions}
    return schema


def _value(rng: random.Random, depth: int, definitions: dict[str, dict]) -> dict:
    leaf = [_string, _integer, _number, _constant, _enum, _simple]
    nested = [_object, _map, _array, _tuple, _any_of, _one_of, _all_of, _reference, _tree]
    kinds = leaf if depth == 0 else [*leaf, *nested]
    kind = rng.choice(kinds)
    return kind(rng) if kind in leaf else kind(rng, depth - 1, definitions)


def _string(rng: random.Random) -> dict:
    kind = rng.randrange(6)
    if kind == 0:
        return {"type": "string", "minLength": rng.randrange(3), "maxLength": rng.randrange(3, 12)}
    if kind == 4:
        return {"type": ["string", "null"], "maxLength": rng.choice([1, 40, 127, 128, 129, 700])}
    if kind == 5:
        return {"type": "string", "minLength": rng.choice([1, 5, 20])}
    if kind == 1:
        return {"type": "string", "pattern": rng.choice(["^[a-z]{2,5}$", "^(x|yy)[0-9]?$", "^[A-Z][a-z]+!$"])}
    if kind == 2:
        return {"type": "string", "format": rng.choice(["date", "email", "uuid", "ipv4"])}
    return {"type": "string", "maxLength": 15}


def _integer(rng: random.Random) -> dict:
    low = rng.choice([-9007199254740991, -50, -1, 0, 3, 17])
    schema: dict = {"type": "integer"}
    if rng.random() < 0.7:
        schema[rng.choice(["minimum", "exclusiveMinimum"])] = low
    if rng.random() < 0.7:
        schema[rng.choice(["maximum", "exclusiveMaximum"])] = low + rng.choice([2, 10, 1000, 9007199254740991])
    if not schema.keys() - {"type"} and rng.random() < 0.5:
        schema["multipleOf"] = rng.choice([2, 3, 5, 10])
    return schema


def _number(rng: random.Random) -> dict:
    schema: dict = {"type": "number"}
    if rng.random() < 0.5:
        schema["minimum"] = rng.choice([-10, 0, 1])
        schema["maximum"] = schema["minimum"] + rng.choice([1, 20])
    return schema


def _constant(rng: random.Random) -> dict:
    return {"const": rng.choice([1, True, None, "fixed", [1, "a"], {"k": 0}])}


def _enum(rng: random.Random) -> dict:
    return {"enum": rng.sample([*WORDS, 1, 2.5, None, False], rng.randrange(1, 5))}


def _simple(rng: random.Random) -> dict:
    return {"type": rng.choice(["boolean", "null", ["boolean", "null"], ["integer", "null"]])}


def _object(rng: random.Random, depth: int, definitions: dict[str, dict]) -> dict:
    names = rng.sample(["id", "name", "tags", "value", "é", "x y"], rng.randrange(1, 5))
    schema: dict = {"type": "object", "properties": {name: _value(rng, depth, definitions) for name in names}}
    schema["required"] = [name for name in names if rng.random() < 0.7]
    if rng.random() < 0.5:
        schema["additionalProperties"] = rng.choice([False, False, {"type": "integer", "minimum": 0, "maximum": 9}])
    return schema


def _map(rng: random.Random, depth: int, definitions: dict[str, dict]) -> dict:
    """Properties of any name, or of names of one form."""
    value = _value(rng, depth, definitions)
    kind = rng.randrange(3)
    if kind == 0:
        return {"type": "object", "patternProperties": {"^[a-z]{1,4}$": value}, "additionalProperties": False}
    if kind == 1:
        return {"type": "object", "propertyNames": {"type": "string", "pattern": "^[xyz]{1,3}$"}}
    low = rng.randrange(2)
    return {"type": "object", "additionalProperties": value, "minProperties": low, "maxProperties": low + 2}


def _array(rng: random.Random, depth: int, definitions: dict[str, dict]) -> dict:
    low = rng.randrange(3)
    return {
        "type": "array",
        "items": _value(rng, depth, definitions),
        "minItems": low,
        "maxItems": low + rng.randrange(3),
    }


def _tuple(rng: random.Random, depth: int, definitions: dict[str, dict]) -> dict:
    items = [_value(rng, depth, definitions) for _ in range(rng.randrange(1, 4))]
    return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}


def _any_of(rng: random.Random, depth: int, definitions: dict[str, dict]) -> dict:
    return {"anyOf": [_value(rng, depth, definitions) for _ in range(rng.randrange(2, 4))]}


def _one_of(rng: random.Random, depth: int, definitions: dict[str, dict]) -> dict:
    """Of plain types, of values, or of objects that a constant tells apart."""
    if rng.random() < 0.5:
        kinds = [{"type": "boolean"}, {"type": "null"}, {"type": "integer"}, {"enum": ["alpha", "beta"]}]
        return {"oneOf": rng.sample(kinds, rng.randrange(2, 4))}
    branches = []
    for name in ("first", "second"):
        properties = {"kind": {"const": name}, name: _value(rng, depth, definitions)}
        branches.append({"type": "object", "properties": properties, "required": ["kind"]})
    return {"oneOf": branches}


def _all_of(rng: random.Random, depth: int, definitions: dict[str, dict]) -> dict:
    return {"allOf": [_value(rng, depth, definitions)]}


def _tree(rng: random.Random, depth: int, definitions: dict[str, dict]) -> dict:
    """A definition that holds itself."""
    label = _value(rng, 0, definitions)
    children = {"type": "array", "items": {"$ref": "#/$defs/Tree"}, "maxItems": 2}
    definitions.setdefault(
        "Tree",
        {"type": "object", "properties": {"label": label, "children": children}, "required": ["label"]},
    )
    return {"$ref": "#/$defs/Tree"}


def _reference(rng: random.Random, depth: int, definitions: dict[str, dict]) -> dict:
    name = rng.choice(["A", "B/c"])
    if name not in definitions:
        definitions[name] = _value(rng, 0, definitions)
    return {"$ref": "#/$defs/" + name.replace("/", "~1")}
