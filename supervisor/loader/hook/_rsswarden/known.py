"""Digests of torch's text with which recycling was run, and the versions of Python it was run on.

A line is made by  python3 supervisor/loader/hook/_rsswarden/fingerprint.py .../torch/utils/data
once the tests of package loader pass there. TestReleases holds that the torch of each test
stand is among them.
"""

DIGESTS = {
    "5cf365804baeb280c72211dcb54da8c2": ("3.11",),  # PyTorch 1.13
    "b6964c98cad2b10366a974b59c2b71a8": ("3.13",),  # PyTorch 2.6
    "af6a1fb288288a0fc1644daa4d9a9db2": ("3.14",),  # PyTorch 2.14.1
}
