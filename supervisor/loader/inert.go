// # What differs in a Python of the job
//
// A Python under rsswarden differs from a bare one in this list, and in
// nothing else that testdata/probe.py sees: its tests compare the two, key by
// key, and with this list. An asterisk stands for any text.
//
// From the start, where sitecustomize.py ran:
//
//	environ PYTHONPATH              begins with the hook directory
//	environ RSSWARDEN_DIR           names the run directory
//	sys.meta_path                   begins with one finder more (CPython from 3.8 on)
//
// Once torch.utils.data.dataloader is imported, in a process that the run
// directory was made for:
//
//	sys.modules _rsswarden*         the hook
//	sys.path_importer_cache */_rsswarden    where that lies
//
// Where the environment is read and site is not run (python -S):
//
//	environ PYTHONPATH              as above
//	environ RSSWARDEN_DIR           as above
//	sys.path                        holds the hook directory, since nothing removes it
//	sys.path_importer_cache */hook-*        it was looked into
//
// Of the whole program's making, beside these (package hold):
//
//	status PPid                     the holder
//	stat ppid                       the holder
//
// Under Python 2, where PYTHONPATH is set and empty, which stands for the
// working directory there and for nothing in Python 3:
//
//	sys.path                        lacks the working directory
//	sys.path_importer_cache *       as does what was looked into
//
// What the probe cannot see: a traceback that passes through sitecustomize, the
// import of torch.utils.data.dataloader or a wrapped method of torch has a line
// of ours; python -v and -X importtime show the imports; where
// PYTHONPYCACHEPREFIX is set, compiled files of ours are written below it; and
// a Python that may not read the hook directory (another user's, in a
// container) keeps it on sys.path and finds nothing there. It is the same after
// the run, in a process that outlives it, if the hook lay in the run directory.
package loader
