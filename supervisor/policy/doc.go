// Package policy decides: which rule fires, on which limit, and what may
// follow. It is the ladder, its hysteresis, the forecast, the cadence and the
// arithmetic behind a worker's budget, a recycle and the advice at the end.
//
// The package is pure. It has no clock, reads no file and logs nothing: time
// comes in as a value, readings come in as [event.Limit], and what it decides
// goes out as [event.Decision]. Whoever calls it reads again before acting,
// acts, and says with [State.Done] what came of it.
//
// What it promises: no rule fires below its rung; never two actions at once;
// nothing fires twice for one crossing unless the first time helped; an action
// that cannot help a limit is never asked for, and is said so once.
//
// signal= and exec= ask somebody else and free nothing themselves. Each is
// decided once for a crossing, however many limits are crossed together, and
// nothing waits for it: the next rung is as near as if it were not there.
package policy
