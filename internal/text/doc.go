// Package text shortens and counts for people: messages, digests, nouns.
//
// Promise: nothing is cut within a character, and what is returned is never longer than asked.
// Inputs and outputs: strings. It imports nothing of this module.
package text
