// Reads dashboards as Grafana's own model does, and names every field that the model has not.
//
// Usage: grafana-schema FILE...
package main

import (
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	plugins.RegisterDefaultPlugins()
	bad := 0
	for _, name := range os.Args[1:] {
		text, err := os.ReadFile(name)
		if err == nil {
			var board dashboard.Dashboard
			if err = board.UnmarshalJSONStrict(text); err == nil {
				err = board.Validate()
			}
		}
		if err != nil && err.Error() != "" { // an empty list of problems is an error value, too
			bad++
			fmt.Printf("%s: %v\n", name, err)
		}
	}
	if bad > 0 {
		os.Exit(1)
	}
}
