// Package agent wires the node's parts into one host service: it watches one
// NodeUpdate, scans media, fetches and serves chunks, loads and pins images, runs
// permitted steps, and reports in the NodeUpdate's status.
//
// Promise: the last desired state is on disk, so that the agent works while the API
// server is unavailable and after a restart: media, pins and a started run need no API
// server. Content that is not approved is not copied, served or loaded. A change of
// state is reported at once, progress at most every 10 s, a heartbeat at most once a
// minute; in a large cluster less (package statusreport).
//
// Loops, each woken by a notification and by a timer of its own:
//
//	watch    NodeUpdate and Contents -> desired state (on disk)
//	media    devices and files -> findings
//	bundles  headers, garbage collection, copy from a medium or fetch from peers
//	images   load and pin, read back over CRI, again every minute
//	run      the steps of spec.run, by package engine
//	stage    the next boot, prepared while pods run
//	facts    versions, file systems
//	publish  state -> status
//
// It also keeps what the status reports in passing: the sources of received bytes (on
// disk, a statistic; in memory, per blob), and how long something has been unwanted (in
// memory; a restart starts again).
//
// Size: the loops share one state and are read together; the parts that stand alone are
// packages below (agentconfig, apiclient, desired, service, install).
//
// Inputs: agentconfig.Config, Parts. Outputs: the node and the status. Caller:
// cmd/refit-agent, through package service.
package agent
