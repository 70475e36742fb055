module scenes

go 1.26.0
