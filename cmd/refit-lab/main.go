// Command refit-lab creates real Kubernetes clusters on one machine, to try and test refit.
package main

import (
	"os"

	"github.com/refit-dev/refit/internal/lab/labcmd"
)

func main() { os.Exit(labcmd.Main(os.Args)) }
