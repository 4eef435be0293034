package screen

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rsswarden/rsswarden/supervisor/control"
)

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
