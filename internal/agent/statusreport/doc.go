// Package statusreport reports the state of a node: in the API and on the node itself.
//
// In the API it decides when an agent writes its status. Promise: a change of state is written at
// once, mere progress seldom, and a heartbeat now and then. The controller of a large cluster asks
// for fewer heartbeats. There the steps of a run count as progress too. Only its start and its end
// are written at once, so that thirty thousand nodes write twice for an update and not for every
// step.
//
// On the node it explains the local status: as text, as the page of ServePage, and above the login
// prompt (Issue); a Hook runs a program with it. Promise: without the API server, in the words of package explain. Texts of
// bundles and programs are escaped. The page is read only and shows no message, and no image.
//
// Inputs: the status as it is and as it was written last; the file that the agent writes. Outputs:
// how long a status may wait; NodeStatus. Intervals and NodeStatus are pure. Callers:
// internal/agent, cmd/refit-agent, and the simulated nodes of internal/lab/simulate, which must
// not write less than real ones.
package statusreport
