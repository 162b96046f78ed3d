#!/usr/bin/env python3
"""Prints the text of a streamed chat answer as it arrives: curl -N … | print_stream.py

Reads server-sent events from stdin. Exit 1 if the stream held an error, no text, or no [DONE].
"""

import json
import sys


def main() -> int:
    characters = 0
    done = False
    for line in sys.stdin:
        data = line.strip().removeprefix("data: ")
        if not data or not line.startswith("data: "):
            continue
        if data == "[DONE]":
            done = True
            break
        event = json.loads(data)
        if "error" in event:
            print(f"\nerror: {event['error'].get('message', event['error'])}", file=sys.stderr)
            return 1
        for choice in event.get("choices", []):
            text = choice.get("delta", {}).get("content") or ""
            characters += len(text)
            print(text, end="", flush=True)
    print()
    if not done or characters == 0:
        print("error: the stream ended without an answer", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
