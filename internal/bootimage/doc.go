// Package bootimage decides what is to be done about the boot image of one
// machine manager.
//
// Promise: pure. No machine that runs is replaced unless the mode is Roll, or
// Piggyback together with a version that a person asked for. An image that
// nobody recognises, one that is newer, an object that somebody else writes are
// left alone, and every such "no" says why and what would change it. Whoever
// undoes what is written is not fought: after some writes it is enough, until
// both sides were quiet.
//
// Inputs: what is known of the manager, its image, the wanted one, who else
// writes, what was written before, now. Output: Decision. Caller:
// internal/controller/bootimages.
package bootimage
