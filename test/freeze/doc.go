// Command freeze compares what programs outside read of refit between two commits: the JSON of
// commands, exit codes, metrics and kinds (CRDs).
//
//	go run ./test/freeze -from 2abdb03 -to HEAD
//	go run ./test/freeze -from 2abdb03 -to HEAD -renames test/freeze/renames.txt
//
// Both trees are read as source, in a directory of their own; nothing of them is run. With a list of
// renames, each line "OLD -> NEW", words of the older tree are replaced first, so that what is printed is
// what the list does not explain. Lines begin with - (gone) or + (new). The exit code is 1 if exit
// codes or metrics differ.
package main
