#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stands between a client and an S3 server and makes trouble now and then, by chance.

usage: s3_trouble.py UPSTREAM_PORT ONE_IN CERTIFICATE

Speaks TLS with that certificate, a file with its key; UPSTREAM_PORT is clear text of this machine.

Prints its port. One in ONE_IN requests is answered 503, or cut before it was sent on, after it was
done, in the middle of its answer, or, if it is a PUT, cut and sent on half a second later, when the
client has long tried again. Ends with the end of its input, and then says how much of each it made.
"""
import http.client
import http.server
import random
import ssl
import sys
import threading
import time

UPSTREAM, ONE_IN = int(sys.argv[1]), int(sys.argv[2])
SLOW_DOWN = (b'<?xml version="1.0"?><Error><Code>SlowDown</Code>'
             b'<Message>Please reduce your request rate.</Message></Error>')
LATE_SECONDS = 0.5
made = {}


def ask(method, path, headers, body):
    upstream = http.client.HTTPConnection("127.0.0.1", UPSTREAM, timeout=60)
    upstream.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in headers:
        upstream.putheader(name, value)
    upstream.endheaders(body)
    answer = upstream.getresponse()
    text = answer.read()
    upstream.close()
    return answer, text


def ask_late(*request):
    time.sleep(LATE_SECONDS)
    ask(*request)


class Trouble(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def kind(self):
        if random.randrange(ONE_IN):
            return "none"
        kinds = ["busy", "unsent", "unanswered", "torn"]
        kind = random.choice(kinds + ["late"] * 2 if self.command == "PUT" else kinds)
        made[kind] = made.get(kind, 0) + 1
        return kind

    def reply(self, status, headers, text, size):
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                self.send_header(name, value)
        self.send_header("Content-Length", size)
        self.end_headers()
        self.wfile.write(text)

    def handle_request(self):
        size = int(self.headers.get("Content-Length", 0))
        request = (self.command, self.path, self.headers.items(), self.rfile.read(size))
        kind = self.kind()
        if kind == "busy":
            self.reply(503, [], SLOW_DOWN, len(SLOW_DOWN))
            return
        if kind == "late":
            threading.Thread(target=ask_late, args=request).start()
        if kind in ("late", "unsent"):
            self.close_connection = True
            return
        answer, text = ask(*request)
        if kind == "unanswered":
            self.close_connection = True
            return
        length = answer.getheader("Content-Length", len(text))
        if kind == "torn":
            self.close_connection = True
            text = text[:len(text) // 2]
        self.reply(answer.status, answer.getheaders(), text, length)

    do_GET = do_HEAD = do_PUT = do_DELETE = handle_request


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Trouble)
server.daemon_threads = True
tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
tls.load_cert_chain(sys.argv[3])
server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
print(server.server_address[1], flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.read()
time.sleep(2 * LATE_SECONDS)
print(" ".join(f"{kind}={count}" for kind, count in sorted(made.items())), flush=True)
