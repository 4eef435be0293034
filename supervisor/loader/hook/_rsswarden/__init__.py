"""The Python side of rsswarden's loader protocol.

channel   the files through which the process and the watcher speak
trim      dropping mapped pages, on request and by budget
private   which private mappings of files may be dropped too
collect   garbage collection and malloc_trim, on request
recycle   replacing a loader's workers one by one
fork_helper  a process that forks replacements in place of the trainer
changes   whether what it has is still what the trainer would give them
revive    going on where a worker was killed
oom       where the kernel counts OOM kills
iterable  replacing those of an iterable dataset between epochs
stateful  replacing those of torchdata's StatefulDataLoader with their state
sharing   what it takes to send a data set to workers that are not forked
contents  the tensors of a data set, found without code of the program's
descriptors what a forked replacement has of its parent's open files and pipes
patch     the places in torch where the above is called
pools     workers of multiprocessing's pools and their like, which trim themselves and go when asked
iterators those in the iterator that has workers, loaded once there is one

Nothing here starts a thread, opens a socket but that to a fork helper, takes a signal or
draws a random number. Whatever raises turns the hook off and is reported; the program goes on.
"""


def begin(module):
    """Patches a module that was just executed, one of sitecustomize's targets, where this process is meant."""
    if not module.__name__.startswith("torch"):
        from _rsswarden import pools

        pools.install(module)
        return
    from _rsswarden import channel

    if not channel.meant():
        return
    from _rsswarden import patch

    if module.__name__ == "torch.utils.data.dataloader":
        patch.install(module)
    else:
        patch.install_stateful(module)
