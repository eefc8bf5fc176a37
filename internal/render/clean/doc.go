// Package clean escapes text for a terminal and for logs. Names, key ids, messages
// and versions come from bundles, nodes and registries, and may contain escape
// sequences that clear a screen, set a title or reverse a line.
//
// Promise: Writer writes printable text, line feeds and tabs unchanged. It writes a
// control character (C0, C1), a bidirectional, zero-width or invisible character and
// an invalid byte as a visible escape (\u001b). The escape is the one of JSON, so JSON
// stays the same document. Only Control writes sequences of refit's own.
//
// Input: any text. Output: the same text, if it is clean. Callers: internal/cli for
// its whole output, cmd for logs, internal/render for single cells.
package clean
