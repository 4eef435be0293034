// Package alert tells Alertmanager and webhooks of rungs that were crossed.
//
// A [Book] holds what is to be told: one alert per limit and rung, firing until the
// rung was left, and resolved ones for a while after that. A receiver decides what
// it is told next and when, with back-off. Both are pure. A [Sender] runs them on a
// goroutine of its own: each message is carried by a process of another program,
// one at a time and for [SendTime] at most, so that nothing of the network is in the
// watcher. Where a receiver does not answer the newest state wins: nothing queues
// up but what an alert is now, and what was overtaken or lost is counted.
package alert
