import mmap, os, sys, threading, zlib
f = open(sys.argv[1], "rb")
m = mmap.mmap(f.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)
print(zlib.crc32(m), flush=True)
def serve():
    while os.read(0, 1):
        print(zlib.crc32(m), flush=True)
    os._exit(7)
if sys.argv[2] == "read":
    serve()
threading.Thread(target=serve).start()
threading.Event().wait()
