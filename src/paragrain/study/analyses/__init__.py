"""What a study looks at beside recall: each a function of data, and a drawing or a page of it."""
