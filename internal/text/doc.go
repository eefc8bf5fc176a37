// Package text shortens, counts and cleans text for people: messages, digests, nouns, and
// all output to a terminal or a log. It hides what looks like a secret.
//
// Promise: nothing is cut within a character, and no result is longer than the limit.
// CleanWriter passes printable text, line feeds and tabs. Names and messages come from
// bundles, nodes and registries, and may hold escape sequences. It writes every control,
// bidirectional, zero-width or invisible character and every invalid byte as the escape of
// JSON (\u001b), so JSON stays the same document. Only WriteControl writes sequences of
// refit's own.
//
// Inputs and outputs: strings and writers. It imports nothing of this module.
package text
