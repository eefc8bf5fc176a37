// Package clean is the way of all words to a terminal and to a log: names, key
// ids, messages and versions come from bundles, nodes and registries, and may
// hold escape sequences that clear a screen, set a title or reverse a line.
//
// Promise: what Writer lets through is printable text, line feeds and tabs. A
// control character (C0, C1), a bidirectional or zero-width character, an
// invisible one and an invalid byte are written as an escape (\u001b), so that a
// person sees that there is something. The escape is the one of JSON, so JSON
// stays the same document. Only Control writes sequences of refit's own.
//
// Input: any text. Output: the same text, if it is clean. Callers: internal/cli
// for everything it prints, cmd for logs, internal/render for single cells.
package clean
