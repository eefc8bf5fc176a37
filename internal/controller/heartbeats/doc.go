// Package heartbeats says when each agent was last heard.
//
// Promise: by this process's own clock, because the clock of a node may be wrong.
// Only a heartbeat that was there before this process is believed as it stands,
// until the next one comes.
//
// Input: NodeUpdates. Caller: controller/clusterupdates.
package heartbeats
