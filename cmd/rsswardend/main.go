// Command rsswardend is the part of rsswarden that talks to the network.
//
//	rsswardend send
//
// carries one alert of a run to its receiver. rsswarden starts it, and links
// nothing of the kind itself.
package main

import (
	"fmt"
	"io"
	"os"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run is the whole program: it returns the exit status.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) == 1 && args[0] == sendCommand {
		return send(stdin, stdout)
	}
	fmt.Fprintln(stderr, "error: rsswardend is started by rsswarden where it is needed\nhint: rsswarden run --alert URL -- COMMAND")
	return 2
}
