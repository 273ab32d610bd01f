"""An adapter with the expected answers of all vectors, and wrong answers to one operation.

The words are the folder of the vectors and, as a control of the judge, the operation to answer wrongly.
"""

import json
import sys
from pathlib import Path

folder, wrong = Path(sys.argv[1]), sys.argv[2:]
expected, operations = {}, {}
for file in folder.glob("*.json"):
    for vector in json.loads(file.read_text("utf-8")).get("vectors", ()):
        operations[vector["op"]] = True
        key = json.dumps([vector["op"], vector["input"]], sort_keys=True)
        known = vector.get("expect") or {"error": "invalid"}
        expected[key] = known | ({"invalidReason": vector["word"]} if "word" in vector else {})


def spoilt(value):
    """Return another value of the same kind."""
    match value:
        case bool():
            return not value
        case str():
            return value[:-1] + ("0" if value[-1:] != "0" else "1")
        case dict():
            return {name: spoilt(each) for name, each in value.items()}
        case None:
            return 0
        case _:
            return value + 1


for line in sys.stdin:
    asked = json.loads(line)
    answer = {"id": asked["id"]}
    found = expected.get(json.dumps([asked["op"], asked["input"]], sort_keys=True))
    if asked["op"] == "capabilities":
        answer["result"] = {"name": "who knows", "operations": [*operations]}
    elif "error" in found:
        answer["error"] = {"code": "invalid"}
    else:
        if asked["op"] == "encode":
            import base64

            text = json.dumps(found["value"])
            given = asked["input"]
            if [given["version"], given["message"]] not in ([1, "required"], ["spec", "required"], ["spec", "receipt"]):  # fmt: skip
                text = base64.b64encode(text.encode()).decode()
            found = {"text": text}
        answer["result"] = found
    if asked["op"] in wrong:
        if "error" in answer:
            answer["result"] = {"value": {}, "base": "1", "address": "0x00"}
            del answer["error"]
        else:
            answer["result"] = spoilt(answer["result"])
    print(json.dumps(answer), flush=True)
