package diagnosis

import (
	"fmt"
)

// whose names who has most of something, and how many more have some.
func whose(g *group) string {
	if g.n <= 1 {
		return fmt.Sprintf("process %d", g.most.id.PID)
	}
	return fmt.Sprintf("process %d and %d more", g.most.id.PID, g.n-1)
}
