// Command overlay-cni is the CNI plugin that goes with overlayd. It takes flannel's configuration as it is.
package main

import (
	"runtime/debug"

	"github.com/nemesh/nemesh/overlay/cni"
)

func main() {
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
	}
	cni.Main("overlay-cni " + version)
}
