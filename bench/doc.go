// Package bench measures what refit does against the limit of the machine in
// the same run, so that the ratio says something on any machine. `make bench`
// writes the last results to results/.
//
// Results of `refit-lab simulate` (make simulate) are kept there, too, each with its
// date, commit and machine.
package bench
