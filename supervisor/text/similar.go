package text

import "strings"

// Similar returns the one of names that was perhaps meant where somebody wrote
// word: dashes, case and underscores do not count, and a slip or two in the
// letters is forgiven. It is empty where nothing comes near.
func Similar(word string, names []string) string {
	word = bare(word)
	best, least := "", 3
	if len(word) < 5 {
		least = 2 // in short words two slips make another word
	}
	for _, name := range names {
		if d := distance(word, bare(name)); d < least {
			best, least = name, d
		}
	}
	return best
}

func bare(s string) string {
	if len(s) > 64 {
		s = s[:64] // longer than any name; what follows only costs time
	}
	return strings.NewReplacer("-", "", "_", "", ".", "", " ", "").Replace(strings.ToLower(s))
}

// distance counts the letters to insert, delete, change, or swap with their
// neighbour to make b of a.
func distance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next := make([]int, len(b)+1)
		next[0] = i
		for j := 1; j <= len(b); j++ {
			same := 1
			if a[i-1] == b[j-1] {
				same = 0
			}
			next[j] = min(last[j]+1, next[j-1]+1, last[j-1]+same)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, last = last, next
	}
	return last[len(b)]
}
