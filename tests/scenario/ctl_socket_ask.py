#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ctl_socket_ask.py SOCKET KEEPER_PID CHECK: one check of the keeper's control socket.

While it runs, a well-behaved client asks for the status again and again and must be served; the
keeper's memory and descriptors must be what they were."""

import json
import os
import random
import socket
import sys
import threading
import time

PATH, PID, CHECK = sys.argv[1], int(sys.argv[2]), sys.argv[3]
WRONG = {"string": 7, "integer": "x", "boolean": "x"}
RIGHT = {"string": "x", "integer": 1, "boolean": True}
TYPES = {"string": str, "integer": int, "boolean": bool, "array": list, "object": dict}
random.seed(11)


def connect(patience=300):
    end = time.monotonic() + patience
    while True:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(patience)
        try:
            client.connect(PATH)
            return client
        except OSError:
            client.close()
            if time.monotonic() > end:
                raise
            time.sleep(0.01)


def lines(client, count):
    """So many answers; fewer when it hangs up."""
    stream = client.makefile("rb")
    out = []
    for _ in range(count):
        line = stream.readline()
        if not line:
            break
        out.append(json.loads(line))
    return out


def say(data, count=1):
    """What comes back for these bytes."""
    client = connect()
    try:
        client.sendall(data)
    except (BrokenPipeError, ConnectionResetError):
        pass
    answers = lines(client, count)
    client.close()
    return answers


def request(method, params=None, ident=1):
    call = {"jsonrpc": "2.0", "id": ident, "method": method}
    if params is not None:
        call["params"] = params
    return json.dumps(call).encode() + b"\n"


def ask(method, params=None):
    """The answer; a crowd before us may still be on its way out."""
    for _ in range(200):
        answers = say(request(method, params))
        if answers and answers[0].get("error", {}).get("message") != "too many clients":
            return answers[0]
        time.sleep(0.02)
    raise AssertionError(f"{method}: never served")


def code(answer):
    return answer.get("error", {}).get("code")


def methods():
    return ask("rpc.describe")["result"]["methods"]


# --- checks ------------------------------------------------------------------------------------


def describe():
    for method in methods():
        name, params = method["name"], method["params"]
        assert method["help"] and method["errors"][:2] == ["usage", "failed"], method
        assert code(ask(name, {"no-such": 1})) == -32602, name
        assert code(ask(name, [1])) == -32602, name
        for param in params:
            assert param["help"], param
            others = {p["name"]: RIGHT[p["type"]] for p in params if p["required"]}
            others[param["name"]] = WRONG[param["type"]]
            answer = ask(name, others)
            assert code(answer) == -32602, (name, param, answer)
            assert param["name"] in answer["error"]["message"], answer
            if param["required"]:
                del others[param["name"]]
                assert code(ask(name, others)) == -32602, (name, param)
    assert code(ask("rpc.describ")) == -32601


def results():
    text = ask("config.get")["result"]["text"]
    calls = {
        "rpc.describe": {}, "status": {}, "stats": {"peer": "mem0"}, "peer.list": {},
        "edge.list": {}, "config.get": {}, "job.list": {},
        "peer.start": {"peer": "nbd0", "timeout_ns": 10**10},
        "peer.restart": {"peer": "mem0"},
        "peer.stop": {"peer": "mem0", "host": True, "dry_run": True},
        "peer.forget": {"peer": "mem0", "dry_run": True},
        "edge.set": {"edge": "vol0:store", "to": "mem0"},
        "config.diff": {"text": text}, "config.apply": {"text": text, "dry_run": True},
        "job.show": {"job": 1}, "job.cancel": {"job": 1, "dry_run": True},
        "segment.reap": {}, "down": {"dry_run": True},
    }
    described = {method["name"]: method for method in methods()}
    for name in ["peer.restart"] + sorted(described):
        method = described[name]
        assert name in calls, f"{name} is not tried"
        answer = ask(name, calls[name])
        if "error" in answer:  # in use, for one
            error = answer["error"]["data"]["name"]
            tried = name in ("peer.stop", "peer.forget")
            assert tried and error in method["errors"], (name, answer)
            continue
        for key in method["result"]:
            value = answer["result"].get(key["name"])
            assert isinstance(value, TYPES[key["type"]]), (name, key, answer)
    for name, params, error in [
        ("stats", {"peer": "nix"}, "not-found"), ("peer.stop", {"peer": "nix"}, "not-found"),
        ("edge.set", {"edge": "a:b", "to": "c"}, "not-found"),
        ("job.show", {"job": 4711}, "not-found"), ("job.show", {"job": -1}, "not-found"),
        ("config.diff", {"text": "[nix"}, "usage"), ("config.apply", {"text": ""}, "usage"),
        ("config.apply", {"text": "[segment]\nsize=1T\n[peer a]\nrole=b\n"}, "conflict"),
    ]:
        answer = ask(name, params)
        assert answer["error"]["data"]["name"] == error, (name, params, answer)
        assert error in described[name]["errors"], (name, error)


def deep():
    for start, count in [(b"[", 60000), (b'{"a":', 12000), (b'{"params":[', 5000)]:
        answers = say(start * count + b"\n")
        assert code(answers[0]) == -32700, answers
    nested = request("stats", {"peer": 1})[:-2] + b',"x":' + b"[" * 2040 + b"]" * 2040 + b"}\n"
    assert code(say(nested)[0]) in (-32602, -32700)


def huge():
    assert code(say(request("stats", {"peer": "x" * 60000}))[0]) == -32000
    assert code(say(request("config.diff", {"text": "[" + "x" * 60000}))[0]) == -32000
    text = "\n".join(f"[peer p{i}]\nrole=r" for i in range(3000))
    assert code(say(request("config.diff", {"text": text}))[0]) == -32000
    assert code(say(b"x" * 70000 + b"\n")[0]) == -32600
    assert code(say(b" " * 200000)[0]) == -32600
    number = b'{"jsonrpc":"2.0","id":1,"method":"job.show","params":{"job":' + b"9" * 400 + b"}}\n"
    assert code(say(number)[0]) == -32700


def utf8():
    for bad in [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82"]:
        data = b'{"jsonrpc":"2.0","id":1,"method":"' + bad + b'"}\n'
        assert code(say(data)[0]) == -32700, bad
    assert code(say(b'{"jsonrpc":"2.0","id":1,"method":"sta\x01tus"}\n')[0]) == -32700
    assert code(say(b"\x00" * 100 + b"\n")[0]) == -32700
    assert code(say(request("stats", {"peer": "\u0000"}))[0]) == -32700
    answer = ask("stats", {"peer": "\u00e4\U0001f600"})
    assert "\u00e4" in answer["error"]["message"], answer


def ids():
    for ident in [0, -1, 1.5, "", "x" * 1000, None, 2**62]:
        answer = say(request("edge.list", None, ident))[0]
        assert answer["id"] == ident and "result" in answer, answer
    for ident in [{}, [], True]:
        answer = say(request("edge.list", None, ident))[0]
        assert code(answer) == -32600 and answer["id"] is None, answer
    # without an id nobody wants an answer: the next one is the next call's
    note = b'{"jsonrpc":"2.0","method":"edge.list"}\n'
    assert say(note * 10 + request("edge.list", None, 7))[0]["id"] == 7


def pipelined():
    client = connect()
    data = b"".join(request("edge.list", None, i) for i in range(2000))
    sender = threading.Thread(target=client.sendall, args=(data,))
    sender.start()
    answers = lines(client, 2000)
    sender.join()
    assert [answer["id"] for answer in answers] == list(range(2000))


def halves():
    client = connect()
    for byte in request("edge.list", None, 3):
        client.sendall(bytes([byte]))
    assert lines(client, 1)[0]["id"] == 3
    half = [connect() for _ in range(30)]
    for client in half:
        client.sendall(b'{"jsonrpc":"2.0",')
    assert "result" in ask("edge.list")
    for client in half:
        client.close()


def crowd():
    """More than it takes at once: the last are told, not kept waiting."""
    told = 0
    for _ in range(30):
        many = [connect() for _ in range(100)]
        answer = lines(many[-1], 1)
        told += answer[0]["error"]["data"]["name"] == "busy"
        for client in many:
            client.close()
    assert told == 30, told


def deaf():
    many = [connect() for _ in range(20)]
    for client in many:
        client.setblocking(False)
        try:
            for _ in range(3000):
                client.send(request("status"))
        except OSError:
            pass
    assert "result" in ask("edge.list")
    for client in many:
        client.close()


def mutants():
    seeds = [request(method["name"]) for method in methods() if method["name"] != "down"]
    seeds.append(request("config.diff", {"text": "[segment]\nname=s\n[peer a]\nrole=b\n"}))
    for _ in range(1500):
        data = bytearray(random.choice(seeds))
        for _ in range(random.randrange(1, 6)):
            data[random.randrange(len(data) - 1)] = random.randrange(256)
        client = connect()
        try:
            client.sendall(bytes(data))
        except OSError:
            pass
        client.close()


# --- others, meanwhile -------------------------------------------------------------------------


def memory():
    with open(f"/proc/{PID}/statm", encoding="ascii") as file:
        return (int(file.read().split()[1]) - shared()) * 4096


def shared():
    with open(f"/proc/{PID}/statm", encoding="ascii") as file:
        return int(file.read().split()[2])


def descriptors():
    return len(os.listdir(f"/proc/{PID}/fd"))


def settled(count):
    for _ in range(500):
        if descriptors() <= count:
            return True
        time.sleep(0.02)
    return False


def main():
    served, stop = [0], threading.Event()

    def others():
        while not stop.is_set():
            assert "result" in ask("status")
            served[0] += 1
            time.sleep(0.02)

    ask("status")
    before, open_before = memory(), descriptors()
    thread = threading.Thread(target=others, daemon=True)
    thread.start()
    globals()[CHECK]()
    seen = served[0]
    while served[0] == seen and thread.is_alive():
        time.sleep(0.01)
    stop.set()
    thread.join()
    assert served[0] > seen, "others are not served"
    assert settled(open_before), f"{descriptors()} descriptors, {open_before} before"
    grown = memory() - before
    print(f"{served[0]} others served, memory {before >> 10} KiB, grown by {grown >> 10} KiB")
    assert grown < 96 << 20, f"memory has grown by {grown >> 20} MiB"


main()
