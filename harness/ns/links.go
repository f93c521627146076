package ns

import (
	"fmt"
	"os"
	"strconv"
)

// Links returns the paths dir/ID/ns/kind (namespaces(7)) of every process or thread in dir. dir is /proc or
// /proc/self/task; kind is net or mnt. A process that ends meanwhile may be in the list. Links does not list
// folders below dir, as filepath.Glob would: the kernel keeps an entry for each and has to free it when the
// process ends (fs/proc/base.c, proc_flush_pid).
func Links(dir, kind string) ([]string, error) {
	folder, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer folder.Close()
	names, err := folder.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var links []string
	for _, name := range names {
		if _, err := strconv.Atoi(name); err == nil {
			links = append(links, dir+"/"+name+"/ns/"+kind)
		}
	}
	return links, nil
}
