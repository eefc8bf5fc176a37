// Command refit is the command line; under the name kubectl-refit it is a kubectl
// plug-in.
package main

import (
	"os"
	_ "time/tzdata" // windows have time zones, and the host may have no zone files

	"github.com/refit-dev/refit/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args)) }
