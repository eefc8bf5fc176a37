// Package pin decides what must be done so that a node holds and pins exactly
// what its hold list says. It is pure.
//
// Promise: what the runtime itself reports over CRI is believed, nothing else.
// An image counts as held when it is there under its tag and under its digest.
// Pins are let go only if refit made them and no held image needs them; applied
// twice is applied once.
//
// Inputs: held images, what CRI reports, the record of own pins. Outputs:
// Decision. Caller: pin/agent.
package pin
