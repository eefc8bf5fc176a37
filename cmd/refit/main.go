// Command refit is the command line; called kubectl-refit it is a kubectl
// plug-in.
package main

import (
	"os"
	_ "time/tzdata" // windows have time zones, and a stick's host may know none

	"github.com/refit-dev/refit/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args)) }
