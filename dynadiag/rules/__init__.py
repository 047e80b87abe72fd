"""What a code means: ours from the table of codes and its `pages`, those of graph breaks in torch's own words."""
