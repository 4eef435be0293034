package event

// Name is the name of an event, the field "event" of every line.
type Name string

// The events: what each tells, [Name.Says] says.
const (
	NameStart     Name = "start"
	NameLimit     Name = "limit"
	NameSample    Name = "sample"
	NameDecision  Name = "decision"
	NameOutcome   Name = "outcome"
	NameLoader    Name = "loader"
	NameDiagnosis Name = "diagnosis"
	NameCure      Name = "cure"
	NameRank      Name = "rank"
	NameFault     Name = "fault"
	NameSignal    Name = "signal"
	NameHelp      Name = "help"
	NameHandover  Name = "handover"
	NameExit      Name = "exit"
)

// kinds are the events, in the order in which a run meets them.
var kinds = []struct {
	name Name
	says string
	make func() any
}{
	{NameStart, "The watch began: command, options and where each came from, limits.", func() any { return &Start{} }},
	{NameLimit, "A limit was found or has changed.", func() any { return &Found{} }},
	{NameSample, "What the limits stand at, at most one an interval.", func() any { return &Sample{} }},
	{NameDecision, "A rule fired.", func() any { return &Decision{} }},
	{NameOutcome, "What a decision brought.", func() any { return &Outcome{} }},
	{NameLoader, "The loader hook said something.", func() any { return &LoaderSaid{} }},
	{NameDiagnosis, "Why something grows, and what to change.", func() any { return &Diagnosis{} }},
	{NameCure, "Something was changed before it could go wrong, by the user's wish.", func() any { return &Cure{} }},
	{NameRank, "A rank of the job on this node came or ended, or leads.", func() any { return &Rank{} }},
	{NameFault, "A part of rsswarden stopped working; the command runs on.", func() any { return &Fault{} }},
	{NameSignal, "A signal reached rsswarden.", func() any { return &Signal{} }},
	{NameHelp, "What the ladder was told of an action; in the record alone.", func() any { return &Help{} }},
	{NameHandover, "What was taken over from the leader before; in the record alone.", func() any { return &Handover{} }},
	{NameExit, "The command has ended: status, peaks, verdict.", func() any { return &Exit{} }},
}

// Names lists every event in the order in which a run meets them.
func Names() []Name {
	list := make([]Name, len(kinds))
	for i, k := range kinds {
		list[i] = k.name
	}
	return list
}

// Says is a sentence for people: what the event tells.
func (n Name) Says() string {
	for _, k := range kinds {
		if k.name == n {
			return k.says
		}
	}
	return ""
}

// New returns a pointer to an empty event of that name, nil for a name that this version
// does not know.
func (n Name) New() any {
	for _, k := range kinds {
		if k.name == n {
			return k.make()
		}
	}
	return nil
}
