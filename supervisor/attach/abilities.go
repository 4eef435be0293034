package attach

// Abilities are what can be done for what is watched. Each field says why not, and is empty
// where it can be done: the zero value is for a command that we started.
type Abilities struct {
	Hook    string // ask a loader for anything
	Ptrace  string // trim by ptrace
	Requeue string // put the job into the queue again
	Comment string // write the job's comment
	Ranks   string // meet the other ranks on this node
	// Cannot is what cannot be done from outside and why, a sentence each.
	Cannot []string
}

// FromOutside are the abilities for what we attached to. noHook is why no loader can be
// asked for anything: one of cannot, in short.
func FromOutside(noHook string, cannot []string) Abilities {
	return Abilities{
		Hook:    noHook,
		Ptrace:  "who attaches is not the holder",
		Requeue: "only what rsswarden run has started is requeued",
		Comment: "it may be another user's job",
		Ranks:   "every attach watches by itself",
		Cannot:  cannot,
	}
}
