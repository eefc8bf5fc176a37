// Package agent wires the node halves into one host service: it watches one
// NodeUpdate, sees media, keeps, copies, fetches and serves chunks, loads and
// pins images, runs permitted steps, and reports in the NodeUpdate's status.
//
// Promise: what it was told last is on disk, so that it works on while the API
// server is away and after a restart: media, pins and a run that has started
// need no API server. Nothing that is not approved is copied, served or loaded.
// It writes its status at once when a state changes, progress at most every
// 10 s, and a heartbeat at most once a minute; in a large cluster less (package
// report).
//
// Loops, each woken by a kick and by a timer of its own:
//
//	watch    NodeUpdate and Contents -> want (on disk)
//	media    devices and files -> findings
//	bundles  headers, garbage, copy from a medium or fetch from peers
//	hold     load and pin, read back over CRI, again every minute
//	run      the steps of spec.run, by package run
//	stage    what is booted next, before the node is taken
//	facts    versions, file systems
//	publish  state -> status
//
// Size: the loops share one state and are read together; what stands alone has
// been taken out (config, nodeapi, remember, told, service, install).
//
// Inputs: config.Config. Outputs: the node and the status. Caller: cmd/refit-agent.
package agent
