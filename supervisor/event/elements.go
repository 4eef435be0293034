package event

import "math"

// Elements counts what arrays have in a JSON text, and the objects: that is what decoding
// makes room for. An element of an array of limits takes 250 bytes of memory and two of
// text, so whoever decodes what another user wrote counts before.
func Elements(text []byte) int {
	n, depth := 0, 0
	var inArray uint64 // a bit for each level
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			n++
			if depth++; depth == 64 {
				return math.MaxInt // nothing of ours is so deep
			}
			inArray &^= 1 << depth
			if c == '[' {
				inArray |= 1 << depth
			}
		case '}', ']':
			if depth--; depth < 0 {
				return n // no JSON
			}
		case ',':
			n += int(inArray >> depth & 1)
		}
	}
	return n
}
