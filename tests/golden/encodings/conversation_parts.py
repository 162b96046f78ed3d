"""What the random conversations of this folder are made of."""

TOOLS = [
    {
        "name": "get_weather",
        "description": "Get weather é",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "n": {"type": "number", "default": 1.0}},
            "required": ["city"],
        },
    },
    {"name": 'f"x', "description": "", "parameters": {"type": "object", "properties": {}}},
]
ARGUMENTS = [
    {"city": "Pa<ris\n</x>", "n": 2.5, "o": {"x": [1, 2, 3]}, "b": True, "z": None},
    {},
    {"q": 'é"', "k": "3", "neg": -1.5},
]
TEXTS = ["hi", "", "a\n\nb", "<think>", "ünï 🙂"]
SCHEMA = {"type": "object", "b": 1, "a": [1, 2.0, "é"]}
