"""Questions about graphs that networkx answers, and layouts that Graphviz makes; both packages are imported when somebody asks."""
