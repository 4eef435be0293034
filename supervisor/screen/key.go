package screen

import (
	"unicode"
	"unicode/utf8"
)

// Key is what a person pressed: a character, or the name of a key.
type Key string

// Keys that are no characters.
const (
	KeyUp        Key = "up"
	KeyDown      Key = "down"
	KeyLeft      Key = "left"
	KeyRight     Key = "right"
	KeyPageUp    Key = "page up"
	KeyPageDown  Key = "page down"
	KeyHome      Key = "home"
	KeyEnd       Key = "end"
	KeyTab       Key = "tab"
	KeyEnter     Key = "enter"
	KeyEscape    Key = "escape"
	KeyBackspace Key = "backspace"
	KeyCtrlC     Key = "ctrl-c"
	KeyCtrlL     Key = "ctrl-l"
	KeyCtrlU     Key = "ctrl-u"
	KeyCtrlZ     Key = "ctrl-z"
)

var controls = map[byte]Key{
	0x02: KeyPageUp, 0x03: KeyCtrlC, 0x06: KeyPageDown, 0x08: KeyBackspace, '\t': KeyTab, '\n': KeyEnter,
	0x0c: KeyCtrlL, '\r': KeyEnter, 0x15: KeyCtrlU, 0x1a: KeyCtrlZ, 0x1c: KeyCtrlC, 0x7f: KeyBackspace,
}

// finals are the last bytes of the sequences that cursor keys send, behind
// ESC [ and, in application mode, ESC O.
var finals = map[byte]Key{
	'A': KeyUp, 'B': KeyDown, 'C': KeyRight, 'D': KeyLeft, 'H': KeyHome, 'F': KeyEnd, 'Z': KeyTab, 'M': KeyEnter,
}

// numbered are the keys that send ESC [ NUMBER ~.
var numbered = map[string]Key{
	"1": KeyHome, "7": KeyHome, "4": KeyEnd, "8": KeyEnd, "5": KeyPageUp, "6": KeyPageDown,
}

// decode reads the keys that a terminal sent, and returns what may be the front of
// another. With final nothing more comes at once: an ESC is the key then.
// Sequences that mean nothing here are left out whole.
func decode(b []byte, final bool) (keys []Key, rest []byte) {
	for len(b) > 0 {
		k, n := decodeOne(b, final)
		if n == 0 {
			return keys, b
		}
		if k != "" {
			keys = append(keys, k)
		}
		b = b[n:]
	}
	return keys, nil
}

// decodeOne returns the first key and its length; 0 where more must come.
func decodeOne(b []byte, final bool) (Key, int) {
	switch {
	case b[0] == 0x1b:
		return escape(b, final)
	case b[0] < ' ' || b[0] == 0x7f:
		return controls[b[0]], 1
	case !utf8.FullRune(b) && !final:
		return "", 0
	}
	r, n := utf8.DecodeRune(b)
	if r == utf8.RuneError || !unicode.IsPrint(r) {
		return "", n
	}
	return Key(r), n
}

// longest is more than any key sends: what goes on beyond is no sequence.
const longest = 32

func escape(b []byte, final bool) (Key, int) {
	if len(b) == 1 {
		if final {
			return KeyEscape, 1
		}
		return "", 0
	}
	switch b[1] {
	case 0x1b:
		return KeyEscape, 1
	case 'O':
		if len(b) > 2 {
			return finals[b[2]], 3
		}
	case '[':
		if len(b) > 2 && b[2] == '[' { // function keys of the Linux console
			if len(b) > 3 {
				return "", 4
			}
			break
		}
		for i := 2; i < len(b); i++ {
			switch c := b[i]; {
			case c == '~':
				return numbered[string(b[2:i])], i + 1
			case c >= 0x40 && c < 0x7f:
				return finals[c], i + 1
			case c < 0x20 || c >= 0x7f || i >= longest:
				return "", i
			}
		}
	default:
		return "", 2 // with Alt
	}
	if final {
		return "", len(b)
	}
	return "", 0
}
