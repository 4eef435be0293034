package screen

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// Model is all that a screen knows. It is a value: what it points to is never
// changed.
type Model struct {
	// W and H are the terminal's columns and lines. H of 0 is as many as there is
	// something to show on.
	W, H int
	Look text.Style
	// Zone is the time zone of what is shown.
	Zone *time.Location
	// Interval is the pause between two questions to the nodes.
	Interval time.Duration
	// Job is what was asked for, empty for this node.
	Job string
	// Live says that keys are answered; else the frame is for paper.
	Live bool

	now, answered time.Time // of the last event and answer; answered is zero before the first
	known

	view   view
	chosen bool // the view was chosen, by a key or an option
	tables [2]table
	filter string
	doing  orders
	dialog
}

// dialog is what keys mean now.
type dialog struct {
	mode    mode
	before  string // the filter before it is edited, to go back to
	pane    *pane
	asked   *order // in a question
	message string // an answer to a key, until the next
}

// known is what the nodes have said.
type known struct {
	nodes        []node
	errs         []string
	ranks, procs []row // in their places
}

// table is how one of the two tables is looked at.
type table struct {
	sort    string
	reverse bool
	rows    []row // what the filter leaves, sorted
	at      rowID // where the mark is; zero for the first row, whatever it is
	index   int   // … as an index of rows
	top     int   // the first row shown
}

// mode is what keys mean now.
type mode int

const (
	browsing mode = iota
	filtering
	asking  // y or n
	reading // a pane
)

// New makes a model without data.
func New(w, h int, look text.Style) Model {
	m := Model{W: w, H: h, Look: look, Zone: time.Local, Interval: time.Second}
	m.tables[ranksView].sort, m.tables[procsView].sort = "rank", "rss"
	return m
}

// SortBy sorts by one of [Keys] whichever table has it, and shows that one.
func (m Model) SortBy(key string) Model {
	var with []view
	for _, v := range []view{ranksView, procsView} {
		if columnNamed(v, key) != nil {
			m.tables[v].sort, m.tables[v].reverse = key, false
			with = append(with, v)
		}
	}
	if len(with) == 1 {
		m.view, m.chosen = with[0], true
	}
	return m.arranged()
}

// Filter leaves only the rows that meet the words.
func (m Model) Filter(words string) Model {
	m.filter = words
	return m.arranged()
}

// Answer is what the nodes said: those that did, and why others did not.
type Answer struct {
	Statuses []control.Status
	Errs     []error
	At       time.Time
}

// Empty says that no leader has ever answered.
func (k *known) Empty() bool { return len(k.nodes) == 0 }

func (m Model) answer(a Answer) Model {
	m.answered = a.At
	m.nodes = merged(m.nodes, a.Statuses, len(a.Errs), a.At)
	m.errs = nil
	for _, err := range a.Errs {
		m.errs = append(m.errs, strings.Join(strings.Fields(err.Error()), " "))
	}
	m.ranks, m.procs = rowsOf(m.nodes)
	if !m.chosen && len(m.nodes) > 0 {
		m.view, m.chosen = ranksView, true
		if len(m.ranks) == 1 {
			m.view = procsView
		}
	}
	return m.arranged()
}

// arranged filters and sorts again. The mark stays with its row, or where it was.
func (m Model) arranged() Model {
	ranks, procs := m.filtered(m.filter)
	for v, rows := range [][]row{ranksView: ranks, procsView: procs} {
		t := &m.tables[v]
		t.rows = rows
		if c := columnNamed(view(v), t.sort); c != nil {
			if c.key == "rank" && t.reverse {
				slices.Reverse(t.rows)
			}
			c.order(t.rows, c.most != t.reverse)
		}
		if t.at == (rowID{}) {
			t.index = 0
		} else if i := slices.IndexFunc(t.rows, func(r row) bool { return r.id() == t.at }); i >= 0 {
			t.index = i
		}
		t.index = max(0, min(t.index, len(t.rows)-1))
	}
	return m.scrolled()
}

// filtered returns the rows that meet the filter. A rank meets it with one of its
// processes too.
func (k *known) filtered(filter string) (ranks, procs []row) {
	if filter == "" {
		return slices.Clone(k.ranks), slices.Clone(k.procs)
	}
	met := map[*control.Rank]bool{}
	for i := range k.procs {
		if r := &k.procs[i]; matches(r, filter) {
			procs = append(procs, *r)
			met[r.rank] = true
		}
	}
	for i := range k.ranks {
		if r := &k.ranks[i]; met[r.rank] || matches(r, filter) {
			ranks = append(ranks, *r)
		}
	}
	return ranks, procs
}

// moved puts the mark of the table in front on another row.
func (m Model) moved(by int) Model {
	t := &m.tables[m.view]
	t.index = max(0, min(t.index+by, len(t.rows)-1))
	t.at = rowID{}
	if t.index > 0 {
		t.at = t.rows[t.index].id()
	}
	return m.scrolled()
}

// scrolled has each table show the row with the mark.
func (m Model) scrolled() Model {
	l := m.layout()
	for v := range m.tables {
		t, n := &m.tables[v], l.rows[v]
		if n <= 0 || !m.Live {
			t.top = 0
			continue
		}
		t.top = max(t.index-n+1, min(t.top, t.index))
		t.top = max(0, min(t.top, len(t.rows)-n))
	}
	return m
}

// marked is the row with the mark, nil where there is none.
func (m *Model) marked() *row {
	t := &m.tables[m.view]
	if t.index >= len(t.rows) {
		return nil
	}
	return &t.rows[t.index]
}

// old is the age beyond which data are called old: a leader reads at least each
// second, and two answers may be missed by chance.
func (m *Model) old() time.Duration { return 2*m.Interval + time.Second }

// oldest names the nodes whose data are old, and gives the greatest age.
func (m *Model) oldest() (age time.Duration, names []string) {
	for i := range m.nodes {
		if a := m.nodes[i].age(m.now); a > m.old() {
			age = max(age, a)
			names = append(names, m.nodes[i].name)
		}
	}
	return age, names
}

// layout says how many lines each part of a frame has.
type layout struct {
	notices  int
	limits   int
	sums     int    // lines with peak and ledger, one a node
	gap      bool   // an empty line between the parts
	tabs     bool   // a line that names the table
	rows     [2]int // lines of rows of each table, 0 for a table that is not shown
	sum      bool   // a line with the sum of the rows
	pane     int    // lines of a pane, where one is open
	activity int
}

// both is the height from which on ranks and processes are shown together; from few on they
// are where ranks need no more than two fifths of the lines.
const (
	both = 40
	few  = 20
)

// layout divides the lines. Rows come last: they have what is left.
func (m *Model) layout() layout {
	one := len(m.ranks) < 2
	l := layout{
		notices: len(m.notices()), limits: len(limitRows(m.nodes)), sums: len(m.nodes), gap: m.H == 0 || m.H >= 30,
		tabs: !one || m.filter != "" || m.view == ranksView, sum: true, activity: len(m.activityLines()),
	}
	if m.H == 0 {
		l.rows = [2]int{max(1, len(m.tables[ranksView].rows)), max(1, len(m.tables[procsView].rows))}
		if one {
			l.rows[ranksView] = 0
		}
		return l
	}
	h := m.H
	most := func(n *int, steps ...int) { // by height: below 12, 16, 24, 30, both, and above
		i := 0
		for _, below := range []int{12, 16, 24, 30, both} {
			i += yes(h >= below)
		}
		*n = min(*n, steps[i])
	}
	most(&l.notices, 1, 1, 2, 2, 4, 8)
	most(&l.limits, 2, 2, 3, 4, 6, 12)
	most(&l.sums, 1, 1, 2, 2, 4, 8)
	most(&l.activity, 1, 1, 2, 3, 3, 6)
	l.tabs = l.tabs && h >= 12
	l.pane = max(0, h-2-l.notices-yes(l.gap))
	for _, n := range []*int{&l.notices, &l.limits, &l.sums} {
		*n = min(*n, h-1)
		h -= *n
	}
	table := yes(l.tabs) + 1 + yes(l.gap) // with the line of titles
	left := h - 1 - l.activity - 1 - table
	if left < 1 {
		l.sum, l.activity = false, min(l.activity, h-1)
		if left = h - 1 - l.activity - table; left < 1 {
			l.activity = min(len(m.activityLines()), h-1)
			return l
		}
	}
	// By all of the ranks, and without notices: neither a filter nor an error makes a table
	// go.
	ranks, rest := max(1, len(m.ranks)), left-table
	share := (rest + l.notices) * 2 / 5
	if one || m.H < few || m.H < both && ranks > share || rest <= share {
		l.rows[m.view] = left
		return l
	}
	l.rows[ranksView] = min(ranks, share)
	l.rows[procsView] = rest - l.rows[ranksView]
	return l
}

func yes(b bool) int {
	if b {
		return 1
	}
	return 0
}

// What may happen to a model, beside [Key] and [Answer].
type (
	// Tick says how late it is.
	Tick time.Time
	// Size is a new size of the terminal.
	Size struct{ W, H int }
	// Said is a line of the answer to an order.
	Said struct {
		ID     int
		Result control.Result
	}
	// Ended says that the answer to an order is complete, or why it is not.
	Ended struct {
		ID  int
		Err error
	}
)

// Effect is what a model wants done.
type Effect int

// The effects.
const (
	Quit    Effect = iota + 1
	Suspend        // ^Z
	Redraw         // the terminal shows something else
	Do             // carry out the newest of the orders
)

// Update returns the model after an event, and what is to be done.
func (m Model) Update(event any) (Model, []Effect) {
	switch e := event.(type) {
	case Key:
		m.message = ""
		return m.key(e)
	case Answer:
		m.now = e.At
		return m.answer(e), nil
	case Tick:
		m.now = time.Time(e)
		m.doing = m.doing.expired(m.now)
	case Size:
		m.W, m.H = e.W, e.H
		return m.scrolled(), []Effect{Redraw}
	case Said:
		m.doing = m.doing.said(e)
	case Ended:
		m.doing = m.doing.ended(e, m.now)
	}
	return m, nil
}

func (m Model) key(k Key) (Model, []Effect) {
	switch k {
	case KeyCtrlC:
		return m, []Effect{Quit}
	case KeyCtrlZ:
		return m, []Effect{Suspend}
	case KeyCtrlL:
		return m, []Effect{Redraw}
	}
	switch m.mode {
	case filtering:
		return m.keyFilter(k), nil
	case asking:
		return m.keyAsk(k)
	case reading:
		return m.keyPane(k)
	}
	return m.keyTable(k)
}

func (m Model) keyTable(k Key) (Model, []Effect) {
	page := max(1, m.layout().rows[m.view]-1)
	switch k {
	case "q":
		return m, []Effect{Quit}
	case KeyUp, "k":
		return m.moved(-1), nil
	case KeyDown, "j":
		return m.moved(1), nil
	case KeyPageUp:
		return m.moved(-page), nil
	case KeyPageDown:
		return m.moved(page), nil
	case KeyHome, "g":
		return m.moved(-len(m.tables[m.view].rows)), nil
	case KeyEnd, "G":
		return m.moved(len(m.tables[m.view].rows)), nil
	case KeyTab:
		return m.show(1 - m.view), nil
	case "r":
		return m.show(ranksView), nil
	case "p":
		return m.show(procsView), nil
	case KeyRight, "s":
		return m.sorted(1), nil
	case KeyLeft:
		return m.sorted(-1), nil
	case "S":
		m.tables[m.view].reverse = !m.tables[m.view].reverse
		return m.arranged(), nil
	case "/":
		m.mode, m.before = filtering, m.filter
	case KeyEscape:
		return m.Filter(""), nil
	case KeyEnter, "i":
		return m.inspect(), nil
	case "?", "h":
		return m.open(&pane{}), nil
	case "R", "T", "C":
		return m.ask(k), nil
	}
	return m, nil
}

func (m Model) show(v view) Model {
	m.view, m.chosen = v, true
	return m.scrolled()
}

// sorted sorts the table in front by a column that is so many further on.
func (m Model) sorted(by int) Model {
	t, all := &m.tables[m.view], columns[m.view]
	at := slices.IndexFunc(all, func(c column) bool { return c.key == t.sort })
	t.sort, t.reverse = all[(at+by+len(all))%len(all)].key, false
	return m.arranged()
}

// longestFilter is more than anybody types.
const longestFilter = 200

func (m Model) keyFilter(k Key) Model {
	switch {
	case k == KeyEnter:
		m.mode = browsing
	case k == KeyEscape:
		m.mode = browsing
		return m.Filter(m.before)
	case k == KeyBackspace:
		_, n := utf8.DecodeLastRuneInString(m.filter)
		return m.Filter(m.filter[:len(m.filter)-n])
	case k == KeyCtrlU:
		return m.Filter("")
	case k == KeyUp, k == KeyDown, k == KeyPageUp, k == KeyPageDown:
		m, _ = m.keyTable(k)
	case utf8.RuneCountInString(string(k)) == 1 && len(m.filter) < longestFilter:
		return m.Filter(m.filter + string(k))
	}
	return m
}

func (m Model) keyAsk(k Key) (Model, []Effect) {
	switch strings.ToLower(string(k)) {
	case "y":
		return m.begin(), []Effect{Do}
	case "n", "q", string(KeyEscape):
		m = m.decided()
		m.message = "nothing was done"
	}
	return m, nil
}

func (m Model) keyPane(k Key) (Model, []Effect) {
	p := *m.pane
	room := m.layout().pane
	switch k {
	case "q", KeyEscape, KeyEnter, "i":
		m.mode, m.pane = browsing, nil
		return m, nil
	case KeyUp, "k":
		p.top--
	case KeyDown, "j":
		p.top++
	case KeyPageUp:
		p.top -= max(1, room-1)
	case KeyPageDown, " ":
		p.top += max(1, room-1)
	case KeyHome, "g":
		p.top = 0
	case KeyEnd, "G":
		p.top = len(m.paneLines())
	case "R", "T", "C":
		if p.row != nil {
			return m.ask(k), nil
		}
	}
	p.top = max(0, min(p.top, len(m.paneLines())-room))
	m.pane = &p
	return m, nil
}
