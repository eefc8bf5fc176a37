// Package jsonfields reads from a tree's source which JSON its commands print.
//
// Promise: every literal that begins with an apiVersion of refit and a kind is a view, with the
// members of its type and of the types below it. Input: a directory; it need not compile. Callers:
// test/docs (the reference of JSON) and test/freeze (two commits compared).
package jsonfields
