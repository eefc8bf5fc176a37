// Command mutate measures how much the tests of the pure packages notice. It changes one
// expression or statement at a time (a mutant), runs the package's own tests, and reports
// the mutants that no test killed.
//
//	go run ./test/mutate                         # a random sample of the twelve packages
//	go run ./test/mutate -predicates             # every mutant of the safety predicates
//	go run ./test/mutate -packages internal/pipeline/drain -sample 0
//
// All mutants of a package are compiled into one test binary with `go test
// -overlay`, so that no file of the tree changes; the environment variable
// REFIT_MUTANT selects one of them for a run. Constants and package variables
// cannot be switched at run time: each of their mutants is a build of its own.
//
// A mutant that behaves like the original is listed in equivalent.txt with its
// reason. It counts neither as killed nor as a survivor. predicates.txt lists
// the functions that decide about safety; the run over them fails if one mutant
// survives. Results go to test/mutate/results with commit and seed.
package main
