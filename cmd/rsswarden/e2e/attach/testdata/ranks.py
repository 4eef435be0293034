import os, signal, subprocess, sys, time
def tell(text):
    os.write(1, text.encode() + b"\n")  # whole: others write there too
def asked(n, frame):
    tell("asked " + os.environ.get("LOCAL_RANK", "main"))
    os._exit(0)
signal.signal(signal.SIGTERM, asked)
if "LOCAL_RANK" in os.environ:
    kept = bytearray(b"x") * (60 << 20)
    tell("ready")
    time.sleep(15)
ranks = [subprocess.Popen([sys.executable, "-c", sys.argv[1]], env=dict(os.environ, LOCAL_RANK=n)) for n in sys.argv[2:]]
for rank in ranks:
    rank.wait()
time.sleep(0.5)
tell("over")
