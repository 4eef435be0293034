import os
kept = []
def app(environ, start_response):
    kept.append(bytearray(os.urandom(1 << 20)))
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(os.getpid()).encode()]
