// Package agent runs the loops of one node's agent. They follow the node's NodeUpdate, scan
// media, fetch and serve chunks, load and pin images, run permitted updates, and report in the
// NodeUpdate's status.
//
// The desired state is on disk, so that the agent works without an API server and after a
// restart: media, pins and a started run need no API server. The agent copies, serves and loads
// approved content only, and images only with the signatures that TrustPolicies want
// (imagesignatures.go). It reports a change of state at once, progress at most every 10 s, and
// a heartbeat at most once a minute; less often in a large cluster (package statusreport).
//
// New wires the loops, Run starts them. Each is a type with its own state and a method Run. A
// wake-up and a timer of its own start a pass:
//
//	watchLoop        NodeUpdate and Contents -> desired state, on disk
//	mediaLoop        devices and files -> media in the status
//	bundleLoop       headers and chunks, from a medium, a delta and its base, peers or a registry;
//	                 garbage collection
//	imageLoop        loads and pins images, reads them back over CRI
//	runLoop          the steps of spec.run, with the Runner
//	stageLoop        the next boot, prepared while pods run
//	factsLoop        drift repair, then versions and fields of the node
//	healthLoop       certificates, etcd, clock
//	maintenanceLoop  work after pinning, cold-start drills
//	problemLoop      problems of the agent -> status and events
//	peerServer       serves chunks to peers, and the log to the controller
//	pageServer       status -> a page on the node, if an address is configured
//	statusHook       status -> a program for a light or a beeper, if one is configured
//	statusLoop       state -> status, in the API and on the node (package statusreport)
//
// authority.Keeper and the container runtime's watch run next to them.
//
// The loops embed a pointer to shared. Its lock mu guards three fields:
//
//   - want and fromAPI, the desired state and its origin. Only watchLoop writes them. A
//     desired.State never changes after that, so readers keep it without the lock.
//   - state, what the status reports. Each loop writes its own part through update, which
//     wakes statusLoop. bundleLoop and imageLoop share the counts of pins; they write them only
//     if the desired pin set is still the one that they counted. watchLoop and statusLoop
//     share what is known of the API server.
//
// The other fields of shared are set by New; their types have locks of their own. So have
// payloadFinder, configApproval and spaceChecker's cache of digests, which several loops use.
// State that a single loop owns needs no lock.
//
// The counts of received bytes by bundle survive a restart. Those by blob, and the grace times
// of unwanted content, start again.
//
// Size: the loops are read together, because they share a state; parts that stand alone are
// packages below (agentconfig, apiclient, desired, service, install).
//
// Inputs: agentconfig.Config, Parts. Outputs: the node and the status. Caller: cmd/refit-agent,
// through package service.
package agent
