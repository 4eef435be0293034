// Package screen shows people what control says of the nodes of a job: limits with
// their forecasts, ranks and processes, live on a terminal or once as text.
//
// A [Model] is all that the screen knows. [Model.Update] takes what happened, a key
// or an answer of the nodes, and returns the next model and what is to be done;
// [Model.View] makes a [Frame] of it, a grid of characters. Neither reads a file or
// a clock. [Run] is the rest: the terminal's modes, the signals, and the bytes that
// turn one frame into the next.
//
// Sizes in tables have one letter, K, M, G or T, for powers of 1024.
package screen
